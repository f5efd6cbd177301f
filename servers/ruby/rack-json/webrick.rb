# Starts config.ru on WEBrick.
require "rack"
require "webrick"

# WEBrick writes an answer's head and body apart and leaves Nagle's algorithm on, so that the body
# waits for the client's delayed acknowledgement: 44 ms an answer.
NO_DELAY = ->(socket) { socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }

app, = Rack::Builder.parse_file(File.join(__dir__, "config.ru"))
Rack::Handler::WEBrick.run(
  app,
  Host: ENV.fetch("HOST", "127.0.0.1"),
  Port: Integer(ENV.fetch("PORT", 8080)),
  AcceptCallback: NO_DELAY,
  # One thread a connection; by default the 101st connection waits until another closes.
  MaxClients: 1024,
  AccessLog: [],
  Logger: WEBrick::Log.new($stderr, WEBrick::BasicLog::FATAL)
) { |server| trap("TERM") { server.shutdown } }
