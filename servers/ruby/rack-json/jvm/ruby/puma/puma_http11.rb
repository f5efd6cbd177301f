# Puma's request parser is an extension in C, or in Java for JRuby. Without rubygems, neither is
# available for the Rubies on the JVM. This substitute waits for the whole head, then parses it as
# strictly as RFC 9112 (sections 3 and 5) requires.
module Puma
  class HttpParserError < IOError; end

  class HttpParser
    REQUEST_LINE = %r{\A([A-Z0-9$\-_.]{1,20}) ([!-~\x80-\xff]{1,12288}) (HTTP/1\.[0-9])\z}n
    METHOD_START = /\A[A-Z0-9$\-_.]{1,20}(?: |\z)/n
    FIELD = /\A([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*\z/n
    TARGET = %r{\A([^?#]*)(?:\?([^#]*))?}n
    UNPREFIXED = %w[CONTENT_LENGTH CONTENT_TYPE].freeze

    attr_reader :body, :nread

    def initialize = reset
    def finished? = @finished
    def error? = @error
    def finish = finished?

    def reset
      @finished = @error = false
      @body = nil
      @nread = 0
    end

    # Reads the head in `buffer`, whose first `start` bytes were seen before. Once the head is
    # complete, fills `env` and keeps what follows as the body. Returns how many bytes were read.
    def execute(env, buffer, start)
      tail = buffer.index("\r\n\r\n", [start - 3, 0].max)
      return @nread = wait_for_more(buffer) if tail.nil?

      line, *fields = buffer.byteslice(0, tail).split("\r\n", -1)
      read_line(env, line)
      fields.each { |field| read_field(env, field) }
      @nread = tail + 4
      @body = buffer.byteslice(@nread, buffer.bytesize)
      @finished = true
      @nread
    end

    private

    # Bytes that cannot become a request are refused before the head is complete.
    def wait_for_more(buffer)
      refuse unless METHOD_START.match?(buffer)
      line, rest = buffer.split("\r\n", 2)
      refuse if rest && !REQUEST_LINE.match?(line)
      buffer.bytesize
    end

    def read_line(env, line)
      parts = REQUEST_LINE.match(line) || refuse
      env["REQUEST_METHOD"] = parts[1]
      env["REQUEST_URI"] = target = parts[2]
      env["HTTP_VERSION"] = parts[3]
      path, query = TARGET.match(target).captures
      env["QUERY_STRING"] = query || ""
      # Puma takes the path out of an absolute target itself.
      env["REQUEST_PATH"] = path if target.start_with?("/")
    end

    def read_field(env, field)
      name, value = (FIELD.match(field) || refuse).captures
      # A name with underscores must not pass for the name with hyphens.
      name = name.tr("_", ",").upcase.tr("-", "_")
      name = "HTTP_#{name}" unless UNPREFIXED.include?(name)
      env[name] = env.key?(name) ? "#{env[name]}, #{value}" : value
    end

    def refuse
      @error = true
      raise HttpParserError, "Invalid HTTP format, parsing fails."
    end
  end
end
