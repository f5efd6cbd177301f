# Copies the Ruby code of the named gems to gems/, for Rubies other than the system's.
require "fileutils"

FileUtils.mkdir_p("gems")
ARGV.each do |name|
  FileUtils.cp_r("#{Gem::Specification.find_by_name(name).full_gem_path}/lib/.", "gems")
end
