(ns ladder
  "One small API in several versions, each of which adds a layer to another. The argument names one."
  (:require [bidi.ring :as bidi]
            [cheshire.core :as cheshire]
            [clojure.string :as string]
            [logging]
            [ring.adapter.jetty :as jetty]
            [ring.util.response :as response]
            [router])
  (:import [com.google.common.base CaseFormat]
           [java.util Properties]
           [org.eclipse.jetty.server Server]
           [org.eclipse.jetty.util.thread QueuedThreadPool])
  (:gen-class))

(set! *warn-on-reflection* true)

(defn- text [body]
  (-> (response/response body) (response/content-type "text/plain")))

(defn- hello [_request] (text "Hello, World!"))
(defn- goodbye [_request] (text "Goodbye, World!"))
(defn- hello-name [{{:keys [name]} :params}] (text (str "Hello, " name "!")))
(defn- not-found [_request] (response/status (text "Not Found") 404))

(defn- json [options]
  (fn [_request]
    (-> (cheshire/generate-string {:hello "World!"} options)
        (response/response)
        (response/content-type "application/json"))))

(defn- camel-by-guava [key]
  (.to CaseFormat/LOWER_HYPHEN CaseFormat/LOWER_CAMEL (name key)))

(defn- camel-by-regex [key]
  (string/replace (name key) #"-(.)" (fn [[_ letter]] (string/upper-case letter))))

(defn- unrouted [hello]
  (fn [request]
    (if (= "/api/hello" (:uri request)) (hello request) (not-found request))))

(defn- routed [hello]
  (router/router {"get /api/hello" hello
                  "get /api/goodbye" goodbye
                  "get /api/query/:name" hello-name}
                 not-found))

(defn- routed-by-bidi [hello]
  (let [handler (bidi/make-handler ["/api/" {"hello" {:get hello}
                                             "goodbye" {:get goodbye}
                                             ["query/" :name] {:get hello-name}}])]
    (fn [request] (or (handler request) (not-found request)))))

(defn- wrap-log [handler log]
  (fn [request] (log request) (handler request)))

(defn- app [rung log]
  (case rung
    "plain" (unrouted hello)
    "route" (routed hello)
    "route-bidi" (routed-by-bidi hello)
    "json" (routed (json {}))
    "camel-lib" (routed (json {:key-fn camel-by-guava}))
    "camel-csk" (routed (json {:key-fn @(requiring-resolve
                                         'camel-snake-kebab.core/->camelCaseString)}))
    "camel-regex" (routed (json {:key-fn camel-by-regex}))
    "log" (routed (wrap-log (json {:key-fn camel-by-regex}) log))
    (wrap-log (routed (json {:key-fn camel-by-regex})) log)))

(defn- version [library]
  (with-open [in (.getResourceAsStream (class app)
                                       (str "/META-INF/maven/" library "/pom.properties"))]
    (.getProperty (doto (Properties.) (.load in)) "version")))

(defn- run
  "Runs Jetty with a request thread per core, an acceptor, a selector and a reserved thread."
  [rung host port cpus]
  (let [{:keys [log finish] :or {finish (constantly nil)}} (logging/technique rung)
        threads (+ 3 cpus)
        server (jetty/run-jetty
                (app rung log)
                {:host host :port port
                 :join? false
                 :min-threads threads
                 :max-threads threads
                 :configurator (fn [^Server server]
                                 (.setReservedThreads ^QueuedThreadPool (.getThreadPool server) 1)
                                 (.setStopTimeout server 1000))})]
    (.addShutdownHook (Runtime/getRuntime) (Thread. #(do (.stop ^Server server) (finish))))))

(defn -main [rung]
  (if (= rung "--version")
    (println (str "Ring " (version "ring/ring-core") ", Jetty " (Server/getVersion)
                  ", Cheshire " (version "cheshire/cheshire") ", bidi " (version "bidi/bidi")
                  ", Log4j " (version "org.apache.logging.log4j/log4j-core")
                  ", Clojure " (clojure-version)
                  ", " (System/getProperty "java.vm.name") " " (Runtime/version)))
    (run rung (System/getenv "HOST") (parse-long (System/getenv "PORT"))
         (parse-long (System/getenv "CPUS")))))
