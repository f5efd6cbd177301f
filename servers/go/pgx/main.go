// net/http with pgx: queries through pgx's pool, and pages with html/template.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type World struct {
	ID     int `json:"id"`
	Number int `json:"number"`
}

type Fortune struct {
	ID      int
	Message string
}

var page = template.Must(template.New("fortunes").Parse(`<!DOCTYPE html>
<html><head><title>Fortunes</title></head><body><table>
<tr><th>id</th><th>message</th></tr>
{{range .}}<tr><td>{{.ID}}</td><td>{{.Message}}</td></tr>
{{end}}</table></body></html>`))

type app struct {
	pool *pgxpool.Pool
	// All rows, read at the first request for them.
	cache func() ([]World, error)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(version(), "on", runtime.Version())
		return
	}
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if size, err := strconv.Atoi(os.Getenv("POOL_SIZE")); err == nil {
		config.MaxConns = int32(size)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	a := app{pool, sync.OnceValues(func() ([]World, error) {
		rows, _ := pool.Query(context.Background(), "SELECT id, number FROM world ORDER BY id")
		return pgx.CollectRows(rows, pgx.RowToStructByPos[World])
	})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /json", greet)
	mux.HandleFunc("GET /db", a.db)
	mux.HandleFunc("GET /queries", a.queries)
	mux.HandleFunc("POST /updates", a.updates)
	mux.HandleFunc("GET /fortunes", a.fortunes)
	mux.HandleFunc("GET /cached", a.cached)
	mux.HandleFunc("POST /upload", upload)
	mux.HandleFunc("GET /delay", delay)
	log.Fatal(http.ListenAndServe(net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")), mux))
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/jackc/pgx/v5" {
			return "pgx " + module.Version
		}
	}
	return "pgx"
}

func (a app) row(ctx context.Context, id int) (World, error) {
	world := World{ID: id}
	err := a.pool.QueryRow(ctx, "SELECT number FROM world WHERE id = $1", id).Scan(&world.Number)
	return world, err
}

func (a app) rows(r *http.Request) ([]World, error) {
	ids, err := numbers(r, "ids")
	if err != nil {
		return nil, err
	}
	worlds := make([]World, len(ids))
	for i, id := range ids {
		if worlds[i], err = a.row(r.Context(), id); err != nil {
			return nil, err
		}
	}
	return worlds, nil
}

func (a app) db(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.URL.Query().Get("id"))
	if err != nil {
		http.Error(w, "id is no number", http.StatusBadRequest)
		return
	}
	world, err := a.row(r.Context(), id)
	answer(w, world, err)
}

func (a app) queries(w http.ResponseWriter, r *http.Request) {
	worlds, err := a.rows(r)
	answer(w, worlds, err)
}

func (a app) updates(w http.ResponseWriter, r *http.Request) {
	worlds, err := a.rows(r)
	changed, wrong := numbers(r, "numbers")
	if err = cmp.Or(err, wrong); err != nil || len(changed) != len(worlds) {
		http.Error(w, "as many numbers as ids are needed", http.StatusBadRequest)
		return
	}
	var batch pgx.Batch
	for i, number := range changed {
		worlds[i].Number = number
		batch.Queue("UPDATE world SET number = $2 WHERE id = $1", worlds[i].ID, number)
	}
	answer(w, worlds, a.pool.SendBatch(r.Context(), &batch).Close())
}

func (a app) fortunes(w http.ResponseWriter, r *http.Request) {
	rows, _ := a.pool.Query(r.Context(), "SELECT id, message FROM fortune")
	fortunes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fortune])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fortunes = append(fortunes, Fortune{0, "Brought by the request: " + r.URL.Query().Get("text")})
	slices.SortFunc(fortunes, func(a, b Fortune) int { return cmp.Compare(a.Message, b.Message) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page.Execute(w, fortunes)
}

func (a app) cached(w http.ResponseWriter, r *http.Request) {
	all, err := a.cache()
	ids, wrong := numbers(r, "ids")
	worlds := make([]World, len(ids))
	for i, id := range ids {
		if id < 1 || id > len(all) {
			http.NotFound(w, r)
			return
		}
		worlds[i] = all[id-1]
	}
	answer(w, worlds, cmp.Or(err, wrong))
}

func greet(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	answer(w, map[string]string{"message": "Hello, " + name + "!"}, nil)
}

func upload(w http.ResponseWriter, r *http.Request) {
	sum := crc32.NewIEEE()
	bytes, err := io.Copy(sum, r.Body)
	answer(w, struct {
		Bytes int64  `json:"bytes"`
		CRC32 string `json:"crc32"`
	}{bytes, fmt.Sprintf("%08x", sum.Sum32())}, err)
}

func delay(w http.ResponseWriter, r *http.Request) {
	ms, err := strconv.Atoi(r.URL.Query().Get("ms"))
	time.Sleep(time.Duration(ms) * time.Millisecond)
	answer(w, map[string]int{"ms": ms}, err)
}

func numbers(r *http.Request, name string) ([]int, error) {
	var found []int
	for _, text := range strings.Split(r.URL.Query().Get(name), ",") {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		found = append(found, number)
	}
	return found, nil
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value)
}
