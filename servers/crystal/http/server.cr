# Crystal's standard HTTP server: a fiber for each connection.
require "http/server"

if ARGV[0]? == "--version"
  workers = {% if flag?(:preview_mt) %} "preview_mt" {% else %} "one thread" {% end %}
  puts "HTTP::Server of Crystal #{Crystal::VERSION}, LLVM #{Crystal::LLVM_VERSION}, #{workers}"
  exit
end

server = HTTP::Server.new do |context|
  request, response = context.request, context.response
  # If a body is left unread, the connection is lost.
  request.body.try &.skip_to_end
  response.content_type = "text/plain"
  if request.path != "/"
    response.status = :not_found
    response.print "Not Found"
  elsif request.method == "GET"
    response.print "Hello, World!"
  elsif request.method == "HEAD"
    response.content_length = 13
  else
    response.status = :method_not_allowed
    response.print "Method Not Allowed"
  end
end

Signal::TERM.trap { exit }
server.bind_tcp ENV.fetch("HOST", "127.0.0.1"), ENV["PORT"].to_i
server.listen
