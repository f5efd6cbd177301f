// A server whose work per request is known: --base and --extra are rounds of arithmetic, in two
// calls. With --alone there is no server. Then the extra rounds are timed in stretches of so many
// requests, and the nanoseconds per request of each stretch are printed.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Each call waits for the result of the one before, so that the processor cannot overlap them.
var result atomic.Uint64

//go:noinline
func work(rounds int) {
	x := result.Load()
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + x>>33
	}
	result.Store(x)
}

func cpuNs() int64 {
	const threadCPUTime = 3
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func main() {
	base := flag.Int("base", 0, "")
	extra := flag.Int("extra", 0, "")
	alone := flag.Int("alone", 0, "")
	flag.Parse()
	if *alone > 0 {
		runtime.LockOSThread()
		for stretch := 0; stretch < 45; stretch++ {
			began := cpuNs()
			for i := 0; i < *alone; i++ {
				work(*extra)
			}
			fmt.Printf("%.3f\n", float64(cpuNs()-began)/float64(*alone))
		}
		return
	}
	body := []byte("Hello, World!")
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if *base > 0 {
			work(*base)
		}
		if *extra > 0 {
			work(*extra)
		}
		w.Write(body)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
