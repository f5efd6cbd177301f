# Crystal's standard HTTP server: a fiber for each connection.
require "http/server"

if ARGV[0]? == "--version"
  workers = {% if flag?(:preview_mt) %} "preview_mt" {% else %} "one thread" {% end %}
  puts "HTTP::Server of Crystal #{Crystal::VERSION}, LLVM #{Crystal::LLVM_VERSION}, #{workers}"
  exit
end

server = HTTP::Server.new do |context|
  response = context.response
  response.content_type = "text/plain"
  if context.request.path != "/"
    response.status = :not_found
    response.print "Not Found"
  elsif context.request.method.in?("GET", "HEAD")
    response.print "Hello, World!"
  else
    response.status = :method_not_allowed
    response.print "Method Not Allowed"
  end
end

Signal::TERM.trap { exit }
server.bind_tcp "127.0.0.1", ENV["PORT"].to_i
server.listen
