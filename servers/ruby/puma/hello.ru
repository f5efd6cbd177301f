# Hello, without a framework: Rack's protocol is a call and three values.
HEADERS = { "content-type" => "text/plain", "content-length" => "13" }.freeze

run lambda { |env|
  return [404, { "content-type" => "text/plain" }, ["Not Found"]] unless env["PATH_INFO"] == "/"

  [200, HEADERS.dup, ["Hello, World!"]]
}
