(* Cohttp on Lwt with Yojson, in one process with a lightweight thread for each connection. *)
open Lwt.Syntax
module Server = Cohttp_lwt_unix.Server

let text = Cohttp.Header.init_with "content-type" "text/plain"
let json = Cohttp.Header.init_with "content-type" "application/json"

let answer status (value : Yojson.Safe.t) =
  Server.respond_string ~headers:json ~status ~body:(Yojson.Safe.to_string value) ()

let refuse status =
  let code = Cohttp.Code.code_of_status status in
  answer status (`Assoc [ ("error", `String (Cohttp.Code.reason_phrase_of_code code)) ])

(* Returns whether a request declares no content type other than JSON. *)
let says_json request =
  match Cohttp.Header.get (Cohttp.Request.headers request) "content-type" with
  | None | Some "application/json" -> true
  | Some said ->
      let media = List.hd (String.split_on_char ';' said) in
      String.lowercase_ascii (String.trim media) = "application/json"

let echo body =
  let* body = Cohttp_lwt.Body.to_string body in
  match Yojson.Safe.from_string body with
  | `Assoc params ->
      let name = Option.value (List.assoc_opt "name" params) ~default:`Null in
      answer `OK (`Assoc [ ("name", name) ])
  | _ | (exception Yojson.Json_error _) -> refuse `Bad_request

let route request body =
  match (Cohttp.Request.meth request, Uri.path (Cohttp.Request.uri request)) with
  | (`GET | `HEAD), "/" -> Server.respond_string ~headers:text ~status:`OK ~body:"Hello, World!" ()
  | _, "/bla" when not (says_json request) -> refuse `Not_acceptable
  | (`GET | `HEAD), "/bla" -> answer `OK (`Assoc [ ("results", `List [ `Int 1; `Int 2; `Int 3 ]) ])
  | `POST, "/bla" -> echo body
  | _, ("/" | "/bla") -> refuse `Method_not_allowed
  | _ -> refuse `Not_found

(* Cohttp would also send a body in response to HEAD, where the next response must begin. *)
let callback _connection request body =
  let* response, page = route request body in
  let bodiless = Cohttp.Request.meth request = `HEAD in
  Lwt.return (response, if bodiless then Cohttp_lwt.Body.empty else page)

let () =
  if Array.length Sys.argv > 1 then
    Printf.printf "cohttp %s, OCaml %s\n" Cohttp.Conf.version Sys.ocaml_version
  else begin
    Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
    let port = int_of_string (Sys.getenv "PORT") in
    Lwt_main.run
      (let* ctx = Conduit_lwt_unix.init ~src:(Sys.getenv "HOST") () in
       let ctx = Cohttp_lwt_unix.Net.init ~ctx () in
       Server.create ~ctx ~backlog:1024 ~mode:(`TCP (`Port port)) (Server.make ~callback ()))
  end
