# The contract `clock`: each body has the current Unix time in milliseconds.
READS = %w[GET HEAD].freeze

run lambda { |env|
  unless env["PATH_INFO"] == "/" && READS.include?(env["REQUEST_METHOD"])
    return [404, { "content-type" => "text/plain" }, ["Not Found"]]
  end

  now = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
  [200, { "content-type" => "text/plain" }, ["Hello World #{now}"]]
}
