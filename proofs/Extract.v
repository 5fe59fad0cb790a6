(* The checker and the digest's step as an OCaml program: byte strings are OCaml's own, numbers stay binary. *)
Require Import Checker Digest.
Require Extraction.
Require Import ExtrOcamlBasic ExtrOcamlNativeString.
Extraction Language OCaml.
Extraction "checker.ml" accepts extend.
