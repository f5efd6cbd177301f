// Go's standard library server, with its own ServeMux for routes and encoding/json for JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime"
)

const bodyLimit = 1 << 20 // 1 MiB

var (
	jsonType = []string{"application/json"}
	textType = []string{"text/plain; charset=utf-8"}
	hello    = []byte("Hello, World!")
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("net/http of", runtime.Version())
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = textType
		w.Write(hello)
	})
	mux.HandleFunc("GET /bla", accepting(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"results": []int{1, 2, 3}})
	}))
	mux.HandleFunc("POST /bla", accepting(postBla))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound)
	})
	server := &http.Server{
		Addr:      net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")),
		Handler:   mux,
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	if certificate := os.Getenv("TLS_CERT"); certificate != "" {
		log.Fatal(server.ListenAndServeTLS(certificate, os.Getenv("TLS_KEY")))
	}
	log.Fatal(server.ListenAndServe())
}

func postBla(w http.ResponseWriter, r *http.Request) {
	var params map[string]any
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	// `null` is not an object, but decodes into a nil map without an error.
	if err != nil || json.Unmarshal(body, &params) != nil || params == nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	answer(w, http.StatusOK, map[string]any{"name": params["name"]})
}

// accepting refuses requests that declare a content type other than JSON.
func accepting(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if said := r.Header.Get("Content-Type"); said != "" && said != "application/json" {
			if media, _, err := mime.ParseMediaType(said); err != nil || media != "application/json" {
				refuse(w, http.StatusNotAcceptable)
				return
			}
		}
		next(w, r)
	}
}

func refuse(w http.ResponseWriter, status int) {
	answer(w, status, map[string]any{"error": http.StatusText(status)})
}

func answer(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"Internal Server Error"}`)
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	w.Write(body)
}
