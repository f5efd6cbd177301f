# The contract `hello`, without a framework. In Rack's protocol, a call returns three values.
HEADERS = { "content-type" => "text/plain", "content-length" => "13" }.freeze

READS = %w[GET HEAD].freeze

run lambda { |env|
  unless env["PATH_INFO"] == "/" && READS.include?(env["REQUEST_METHOD"])
    return [404, { "content-type" => "text/plain" }, ["Not Found"]]
  end

  [200, HEADERS.dup, ["Hello, World!"]]
}
