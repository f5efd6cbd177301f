# Starts config.ru on Puma, on a Ruby that runs on the JVM.
require "puma/cli"
require "puma/server"

# Puma asks for TCP_NODELAY on the listening socket only; on the JVM the accepted ones don't inherit
# it, and an answer's body would wait 44 ms for the client's delayed acknowledgement of its head.
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
