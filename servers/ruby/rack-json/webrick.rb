# Starts config.ru on WEBrick.
require "rack"
require "webrick"

# WEBrick writes the head and the body of a response separately and leaves Nagle's algorithm on. The
# body would wait for the client's delayed acknowledgement, 44 ms for each response.
NO_DELAY = ->(socket) { socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }

app, = Rack::Builder.parse_file(File.join(__dir__, "config.ru"))
Rack::Handler::WEBrick.run(
  app,
  Host: ENV.fetch("HOST", "127.0.0.1"),
  Port: Integer(ENV.fetch("PORT", 8080)),
  AcceptCallback: NO_DELAY,
  # One thread for each connection. By default, the 101st connection waits until another closes.
  MaxClients: 1024,
  AccessLog: [],
  Logger: WEBrick::Log.new($stderr, WEBrick::BasicLog::FATAL)
) { |server| trap("TERM") { server.shutdown } }
