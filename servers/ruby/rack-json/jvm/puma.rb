# Starts config.ru on Puma, on a Ruby that runs on the JVM.
require "puma/cli"
require "puma/server"

# Puma sets TCP_NODELAY on the listening socket only. On the JVM, accepted sockets do not inherit
# this option. The body of a response would wait 44 ms for the client's delayed acknowledgement of
# the head.
module NoDelay
  def initialize(io, env = nil)
    io.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    super
  end
end
Puma::Client.prepend(NoDelay)

host = ENV.fetch("HOST", "127.0.0.1")
port = ENV.fetch("PORT", "8080")
Puma::CLI.new(["--quiet", "--bind", "tcp://#{host}:#{port}", "config.ru"]).run
