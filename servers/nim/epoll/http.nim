## Just enough of HTTP/1.1 (RFC 9112) for one page: where a request ends, and its response.

type
  Status* = enum
    Hello, HelloHead, BadRequest, NotFound, NotAllowed, TooLarge, NotImplemented, BadVersion
  Request* = object
    head*: int       ## length of the head in bytes, or 0 if the head is incomplete
    body*: int       ## length of the body in bytes (the body is ignored)
    keep*: bool      ## whether the connection may be kept
    status*: Status
    hostless: bool   ## whether HTTP/1.1 requires a Host that has not been seen yet

const headLimit* = 16384

func page(status, more, text: string, keep: bool): string =
  "HTTP/1.1 " & status & "\r\nContent-Type: text/plain\r\n" & more &
    (if keep: "" else: "Connection: close\r\n") & "Content-Length: " & $text.len & "\r\n\r\n" & text

func pages(keep: bool): array[Status, string] =
  for status, line in ["200 OK", "200 OK", "400 Bad Request", "404 Not Found",
      "405 Method Not Allowed", "431 Request Header Fields Too Large", "501 Not Implemented",
      "505 HTTP Version Not Supported"]:
    let text = if status <= Hello.ord + 1: "Hello, World!" else: line[4 .. ^1]
    let allow = if status == NotAllowed.ord: "Allow: GET, HEAD\r\n" else: ""
    result[Status(status)] = page(line, allow, text, keep)
  result[HelloHead].setLen(result[HelloHead].len - 13)

const answers*: array[bool, array[Status, string]] = [pages(false), pages(true)]

type Chars* = ptr UncheckedArray[char]

func memchr(s: pointer, c: cint, n: csize_t): pointer {.importc, header: "<string.h>".}

func find(s: Chars, c: char, start, stop: int): int {.inline.} =
  let found = memchr(addr s[start], c.cint, csize_t(stop - start))
  if found == nil: -1 else: cast[int](found) - cast[int](s)

func same(s: Chars, start, stop: int, word: static string): bool {.inline.} =
  stop - start == word.len and equalMem(addr s[start], word.cstring, word.len)

func begins(s: Chars, start, stop: int, word: static string): bool =
  ## Returns whether a line begins with a word in any case. The word is given in lower case.
  if stop - start < word.len: return false
  for i, c in word:
    if chr(s[start + i].ord or 0x20) != c: return false
  true

func requestLine(s: Chars, stop: int, r: var Request) =
  let space = s.find(' ', 0, stop)
  let version = stop - 8
  if space < 1 or version <= space + 1 or s[version - 1] != ' ': return
  if not s.begins(version, stop, "http/"): return
  if s.same(version, stop, "HTTP/1.1"): (r.keep, r.hostless) = (true, true)
  elif not s.same(version, stop, "HTTP/1.0"):
    r.status = BadVersion
    return
  if s[space + 1] != '/' or s[space + 2] notin {' ', '?'}: r.status = NotFound
  elif s.same(0, space, "GET"): r.status = Hello
  elif s.same(0, space, "HEAD"): r.status = HelloHead
  else: r.status = NotAllowed

func header(s: Chars, start, stop: int, r: var Request) =
  if s.begins(start, stop, "host:"): r.hostless = false
  elif s.begins(start, stop, "connection:"):
    for at in start + 11 .. stop - 5:
      if s.begins(at, stop, "close"): r.keep = false
  elif s.begins(start, stop, "content-length:"):
    var digits = 0
    for at in start + 15 ..< stop:
      if s[at] in '0' .. '9' and digits < 12:
        r.body = r.body * 10 + s[at].ord - '0'.ord
        inc digits
      elif s[at] notin {' ', '\t'}: digits = 99
    if digits notin 1 .. 12: r.status = BadRequest
  elif s.begins(start, stop, "transfer-encoding:"): r.status = NotImplemented

func parse*(s: Chars, n: int): Request =
  ## Returns the request at the beginning of `n` bytes.
  result.status = BadRequest
  var start = 0
  while true:
    let stop = s.find('\n', start, n)
    if stop < 0:
      if n < headLimit: return Request()
      return Request(head: n, status: TooLarge)
    if stop == 0 or s[stop - 1] != '\r': result.status = BadRequest
    elif start == 0: s.requestLine(stop - 1, result)
    elif stop - 1 == start:
      result.head = stop + 1
      if result.hostless: result.status = BadRequest
    else: s.header(start, stop - 1, result)
    if result.status in {BadRequest, TooLarge, NotImplemented, BadVersion}:
      result.keep = false
      result.head = n
    if result.head > 0: return
    start = stop + 1
