module server

go 1.24.0

require github.com/klauspost/compress v1.18.0
