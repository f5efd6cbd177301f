// A server whose work per request is known: --base and --extra are rounds of arithmetic, in two
// calls. With --alone N, the program does not serve, but times the extra rounds in stretches of N
// requests, and prints the nanoseconds per request of each stretch. With --timed FILE, the server
// times the extra rounds of one request in 64. At its end, the server appends their mean in
// nanoseconds to the file.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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

var (
	seen  atomic.Uint64
	lock  sync.Mutex
	timed []float64
)

func timedWork(rounds int) {
	if seen.Add(1)%64 != 0 {
		work(rounds)
		return
	}
	began := time.Now()
	work(rounds)
	took := float64(time.Since(began))
	lock.Lock()
	timed = append(timed, took)
	lock.Unlock()
}

// Returns the mean of the times up to three medians. During longer times, something else ran.
func mean(times []float64) float64 {
	slices.Sort(times)
	sum, kept := 0.0, 0
	for _, took := range times {
		if took <= 3*times[len(times)/2] {
			sum += took
			kept++
		}
	}
	return sum / float64(kept)
}

func appendTo(file string) {
	lock.Lock()
	clock := make([]float64, 999)
	for i := range clock {
		began := time.Now()
		clock[i] = float64(time.Since(began))
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil || len(timed) == 0 {
		os.Exit(1)
	}
	fmt.Fprintf(out, "%.1f\n", mean(timed)-mean(clock))
	os.Exit(0)
}

func main() {
	base := flag.Int("base", 0, "")
	extra := flag.Int("extra", 0, "")
	alone := flag.Int("alone", 0, "")
	file := flag.String("timed", "", "")
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
	body, extraWork := []byte("Hello, World!"), work
	if *file != "" {
		extraWork = timedWork
		over := make(chan os.Signal, 1)
		signal.Notify(over, syscall.SIGTERM)
		go func() {
			<-over
			appendTo(*file)
		}()
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		if *base > 0 {
			work(*base)
		}
		if *extra > 0 {
			extraWork(*extra)
		}
		w.Write(body)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
