# Copies the Ruby code of the gems named to gems/, for the Rubies that aren't the system's.
require "fileutils"

FileUtils.mkdir_p("gems")
ARGV.each do |name|
  FileUtils.cp_r("#{Gem::Specification.find_by_name(name).full_gem_path}/lib/.", "gems")
end
