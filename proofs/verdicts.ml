(* Reads certificates as lines of words, and says of each `accepted` or `refused`, by the checker that was
   extracted from the proof. Numbers and byte strings are in hexadecimal, byte strings after a `=`; `-` is
   none. Anything else ends the program with an error: it gives no verdict on what it cannot read.

     log START XMAX RUNNING                       where the log begins, and the snapshot of what lies before
     frontier PLACE
     unit LOW HIGH LO HI XMAX RUNNING             then its rows:  row KEY ROW
     change PLACE ID KEY ROW                      no key: TRUNCATE; no row: deleted
     parent SUBTRANSACTION TRANSACTION
     claim KEY ROW
     end
   RUNNING: ids with commas between. Keys are in the order of their bytes. *)
open Checker

let digit = function
  | '0' .. '9' as c -> Char.code c - 48
  | 'a' .. 'f' as c -> Char.code c - 87
  | _ -> failwith "not a hexadecimal digit"

let bits word = List.concat_map (fun c -> List.map (fun i -> digit c lsr i land 1) [3; 2; 1; 0])
    (List.of_seq (String.to_seq word))

let shifted number bit = match number, bit with
  | N0, 0 -> N0
  | N0, _ -> Npos XH
  | Npos p, 0 -> Npos (XO p)
  | Npos p, _ -> Npos (XI p)

let number word = if word = "" then failwith "not a number" else List.fold_left shifted N0 (bits word)

let bytes word =
  let size = String.length word in
  if size mod 2 = 0 || word.[0] <> '=' then failwith "not a byte string";
  String.init (size / 2) (fun i -> Char.chr (16 * digit word.[2 * i + 1] + digit word.[2 * i + 2]))

let optional = function "-" -> None | word -> Some (bytes word)
let snapshot xmax ids =
  { xmax = number xmax;
    running = if ids = "-" then [] else List.map number (String.split_on_char ',' ids) }

let empty =
  { start = N0; before = { xmax = N0; running = [] }; frontier = N0; units = []; log = []; parents = [];
    claimed = [] }

let with_row units key row = match units with
  | u :: rest -> { u with found_rows = (bytes key, bytes row) :: u.found_rows } :: rest
  | [] -> failwith "a row of no unit"

let unit_of low high lo hi xmax ids =
  { keys = { low = optional low; high = optional high }; from = number lo; until = number hi;
    under = snapshot xmax ids; found_rows = [] }

(* Lists are gathered backwards. *)
let gathered c = function
  | ["log"; start; xmax; ids] -> { c with start = number start; before = snapshot xmax ids }
  | ["frontier"; place] -> { c with frontier = number place }
  | ["unit"; low; high; lo; hi; xmax; ids] -> { c with units = unit_of low high lo hi xmax ids :: c.units }
  | ["row"; key; row] -> { c with units = with_row c.units key row }
  | ["change"; place; id; key; row] ->
    let one = { place = number place; writer = number id; subject = optional key; image = optional row } in
    { c with log = one :: c.log }
  | ["parent"; sub; top] -> { c with parents = (number sub, number top) :: c.parents }
  | ["claim"; key; row] -> { c with claimed = (bytes key, bytes row) :: c.claimed }
  | _ -> failwith "not a line of a certificate"

let forwards c =
  { c with units = List.rev_map (fun u -> { u with found_rows = List.rev u.found_rows }) c.units;
           log = List.rev c.log; parents = List.rev c.parents; claimed = List.rev c.claimed }

let rec judged c = match String.split_on_char ' ' (input_line stdin) with
  | ["end"] ->
    print_endline (if accepts (fun a b -> String.compare a b < 0) (forwards c) then "accepted" else "refused");
    judged empty
  | words -> judged (gathered c words)
  | exception End_of_file -> if c <> empty then failwith "a certificate without its end"

let () = judged empty
