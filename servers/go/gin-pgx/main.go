// Gin with pgx: queries through pgx's pool, and pages with html/template.
package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
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

var pool *pgxpool.Pool

// All rows, in the order of their ids.
var kept []World

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("gin", gin.Version, "on", runtime.Version())
		return
	}
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if size, err := strconv.Atoi(os.Getenv("POOL_SIZE")); err == nil {
		config.MaxConns = int32(size)
	}
	if pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		log.Fatal(err)
	}
	rows, _ := pool.Query(context.Background(), "SELECT id, number FROM world ORDER BY id")
	if kept, err = pgx.CollectRows(rows, pgx.RowToStructByPos[World]); err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(gin.Recovery())
	router.LoadHTMLFiles("fortunes.html")
	router.GET("/json", greet)
	router.GET("/db", db)
	router.GET("/queries", queries)
	router.POST("/updates", updates)
	router.GET("/fortunes", fortunes)
	router.GET("/cached", cached)
	router.POST("/upload", upload)
	router.GET("/delay", delay)
	log.Fatal(router.Run(os.Getenv("HOST") + ":" + os.Getenv("PORT")))
}

func row(c *gin.Context, id int) (World, error) {
	world := World{ID: id}
	sql := "SELECT number FROM world WHERE id = $1"
	err := pool.QueryRow(c.Request.Context(), sql, id).Scan(&world.Number)
	return world, err
}

func rows(c *gin.Context) ([]World, error) {
	var worlds []World
	for _, id := range numbers(c, "ids") {
		world, err := row(c, id)
		if err != nil {
			return nil, err
		}
		worlds = append(worlds, world)
	}
	return worlds, nil
}

func greet(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"message": "Hello, " + c.Query("name") + "!"})
}

func db(c *gin.Context) {
	id, _ := strconv.Atoi(c.Query("id"))
	world, err := row(c, id)
	answer(c, world, err)
}

func queries(c *gin.Context) {
	worlds, err := rows(c)
	answer(c, worlds, err)
}

func updates(c *gin.Context) {
	worlds, err := rows(c)
	changed := numbers(c, "numbers")
	if err != nil {
		answer(c, nil, err)
		return
	}
	if len(changed) != len(worlds) {
		c.String(http.StatusBadRequest, "as many numbers as ids are needed")
		return
	}
	var batch pgx.Batch
	for i, number := range changed {
		worlds[i].Number = number
		batch.Queue("UPDATE world SET number = $2 WHERE id = $1", worlds[i].ID, number)
	}
	answer(c, worlds, pool.SendBatch(c.Request.Context(), &batch).Close())
}

func fortunes(c *gin.Context) {
	rows, _ := pool.Query(c.Request.Context(), "SELECT id, message FROM fortune")
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Fortune])
	if err != nil {
		c.String(http.StatusInternalServerError, err.Error())
		return
	}
	all = append(all, Fortune{0, "Brought by the request: " + c.Query("text")})
	slices.SortFunc(all, func(a, b Fortune) int { return cmp.Compare(a.Message, b.Message) })
	c.HTML(http.StatusOK, "fortunes.html", all)
}

func cached(c *gin.Context) {
	var worlds []World
	for _, id := range numbers(c, "ids") {
		worlds = append(worlds, kept[id-1])
	}
	c.JSON(http.StatusOK, worlds)
}

func upload(c *gin.Context) {
	sum := crc32.NewIEEE()
	bytes, err := io.Copy(sum, c.Request.Body)
	answer(c, struct {
		Bytes int64  `json:"bytes"`
		CRC32 string `json:"crc32"`
	}{bytes, fmt.Sprintf("%08x", sum.Sum32())}, err)
}

func delay(c *gin.Context) {
	ms, err := strconv.Atoi(c.Query("ms"))
	time.Sleep(time.Duration(ms) * time.Millisecond)
	answer(c, gin.H{"ms": ms}, err)
}

func numbers(c *gin.Context, name string) []int {
	var found []int
	for text := range strings.SplitSeq(c.Query(name), ",") {
		if number, err := strconv.Atoi(text); err == nil {
			found = append(found, number)
		}
	}
	return found
}

func answer(c *gin.Context, value any, err error) {
	if err != nil {
		c.String(http.StatusInternalServerError, err.Error())
		return
	}
	c.JSON(http.StatusOK, value)
}
