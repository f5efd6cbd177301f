// net/http with its file server, behind gzhttp, which compresses for clients that accept it.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

// The file server sets no entity tag, but uses a tag that is already set.
func tagged(folder string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		about, err := os.Stat(filepath.Join(folder, path.Clean("/"+r.URL.Path)))
		if err == nil && !about.IsDir() {
			w.Header().Set("ETag", tag(about.ModTime(), about.Size()))
		}
		next.ServeHTTP(w, r)
	})
}

func tag(changed time.Time, bytes int64) string {
	return fmt.Sprintf(`"%x-%x"`, changed.UnixNano(), bytes)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(runtime.Version())
		return
	}
	folder := os.Getenv("FILES")
	plain := tagged(folder, http.FileServer(http.Dir(folder)))
	compressed := gzhttp.GzipHandler(plain)
	// Without the wrapper of gzhttp, the kernel copies files to the socket (sendfile).
	files := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			compressed.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static", files))
	log.Fatal(http.ListenAndServe(net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")), mux))
}
