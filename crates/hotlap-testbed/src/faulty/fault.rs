//! The faults that a server may have.

/// The contract that a faulty server implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The contract `hello`.
    Hello,
    /// The contract `clock`.
    Clock,
    /// The contract `json-api`.
    JsonApi,
}

/// The fault of a server that otherwise fulfils its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It sends a response before the request.
    RespondsBeforeRequest,
    /// Lines of its heads end in LF alone.
    BareLineFeeds,
    /// It keeps the connection open after `Connection: close`.
    IgnoresConnectionClose,
    /// It keeps the connection open after a request of HTTP/1.0.
    KeepsHttp10Open,
    /// It responds to each read, whether the request is complete or not.
    RespondsToEachRead,
    /// It sends every response twice.
    RespondsTwice,
    /// It responds to the first of several pipelined requests only.
    DropsPipelined,
    /// It responds to pipelined requests in reverse order.
    SwapsPipelined,
    /// It closes the connection after each response without announcing it.
    ClosesUnannounced,
    /// It announces and closes the connection after each response.
    ClosesAnnounced,
    /// Its bodies end with the connection.
    NoContentLength,
    /// It serves no further connection after a byte that is not ASCII.
    DiesOnGarbage,
    /// It serves no further connection after a reset.
    DiesOnReset,
    /// It serves no further connection after half a request.
    DiesOnHalfARequest,
    /// Its body differs in one letter.
    WrongBody,
    /// Its `Content-Type` is `text/html`.
    WrongContentType,
    /// Its clock shows the time of the first request.
    StaleClock,
    /// Its clock is 5 s slow.
    WrongClock,
    /// It sends the same response for every path.
    AcceptsAnyPath,
    /// It never responds.
    Silent,
    /// It sends chunks to clients of HTTP/1.0.
    ChunksToHttp10,
    /// It sends 505 to clients of HTTP/1.0.
    RefusesHttp10,
    /// It sends the body in response to HEAD.
    BodyToHead,
    /// It sends no `Date`.
    NoDate,
    /// Its `Date` is that of the first request.
    StaleDate,
    /// Its `Date` is an hour fast.
    WrongDate,
    /// It sends no `Server`.
    NoServerHeader,
    /// It sends no `100 (Continue)`.
    NoContinue,
    /// It sends the same response for every method.
    AcceptsAnyMethod,
    /// It accepts every HTTP version.
    AcceptsAnyVersion,
    /// It accepts requests without `Host`.
    AcceptsMissingHost,
    /// It takes the chunks of a body for requests.
    TakesChunksForRequests,
    /// It closes the connection on heads of over 60,000 bytes.
    ClosesOnLargeHeaders,
    /// It accepts two different `Content-Length`.
    AcceptsTwoLengths,
    /// It accepts a space between a header's name and the colon.
    AcceptsSpaceBeforeColon,
    /// It closes the connection on a folded header.
    ClosesOnFoldedHeaders,
    /// It does not know its own path as an absolute URL.
    RejectsAbsoluteTarget,
    /// It accepts every `Content-Type`.
    AcceptsAnyMediaType,
    /// It accepts a connection only after the one before has ended.
    OneConnectionAtATime,
    /// Its body contains a number that counts the requests.
    CountsRequests,
    /// It writes a line to `access.log` in its current folder for every request. (A feature.)
    LogsRequests,
    /// It does so for every other request.
    LogsEveryOtherRequest,
}
