// net/http with its file server, behind gzhttp, which compresses for clients that accept it.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/klauspost/compress/gzhttp"
)

// The file server has no entity tags, but honours one that is set before it.
func tagged(folder http.Dir, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if file, err := folder.Open(r.URL.Path); err == nil {
			if about, err := file.Stat(); err == nil && !about.IsDir() {
				w.Header().Set("ETag", tag(about.ModTime(), about.Size()))
			}
			file.Close()
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
	folder := http.Dir(os.Getenv("FILES"))
	files := gzhttp.GzipHandler(tagged(folder, http.FileServer(folder)))
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static", files))
	log.Fatal(http.ListenAndServe(net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")), mux))
}
