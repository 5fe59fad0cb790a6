"""The process that Spark forks its Python workers from, with the slow imports done once, beforehand.

Without it every new worker spends about a second importing.
"""

from truecut.spark.zygote import be_daemon, hand_over, warm

if __name__ == "__main__" and not hand_over():
    warm()
    be_daemon()
