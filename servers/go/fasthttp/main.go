// fasthttp: a Go server that reuses its request objects instead of allocating them.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/valyala/fasthttp"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		build, _ := debug.ReadBuildInfo()
		for _, module := range build.Deps {
			if module.Path == "github.com/valyala/fasthttp" {
				fmt.Println("fasthttp", module.Version, "on", runtime.Version())
			}
		}
		return
	}
	server := &fasthttp.Server{
		Name:               "fasthttp",
		MaxRequestBodySize: 1 << 20,
		// Twice the default size, so that a request head of common size fits.
		ReadBufferSize: 8192,
		Handler: func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) != "/" {
				ctx.Error("Not Found", fasthttp.StatusNotFound)
				return
			}
			ctx.SetContentType("text/plain; charset=utf-8")
			ctx.SetBodyString("Hello, World!")
		},
	}
	address := net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT"))
	if certificate := os.Getenv("TLS_CERT"); certificate != "" {
		log.Fatal(server.ListenAndServeTLS(address, certificate, os.Getenv("TLS_KEY")))
	}
	log.Fatal(server.ListenAndServe(address))
}
