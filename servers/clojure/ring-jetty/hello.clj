(ns hello
  "Ring handlers that respond with a greeting, or with a greeting and the time. Each handler uses
  another technique."
  (:require [lazy-request]
            [ring.adapter.jetty :as jetty]
            [ring.core.protocols :as protocols]
            [ring.util.servlet :as servlet]
            [undertow])
  (:import [java.io OutputStream]
           [org.eclipse.jetty.server Server]
           [org.eclipse.jetty.util.thread QueuedThreadPool])
  (:gen-class))

(set! *warn-on-reflection* true)

(defn- hello [_request]
  {:status 200
   :headers {"Content-Type" "text/plain"}
   :body "Hello, World!"})

(defn- tutorial [_request]
  {:status 200
   :headers {"Content-Type" "text/plain"}
   :body (str "Hello World " (System/currentTimeMillis))})

(defn- nocontenttype [_request]
  {:status 200
   :headers {}
   :body (str "Hello World " (System/currentTimeMillis))})

(def ^bytes greeting (.getBytes "Hello World "))

(defrecord Clock [^long ms]
  protocols/StreamableResponseBody
  (write-body-to-stream [_ _response stream]
    (with-open [^OutputStream out stream]
      (.write out ^bytes greeting)
      (.write out (.getBytes (Long/toString ms))))))

(defn- handler [_request]
  {:status 200
   :headers {}
   :body (->Clock (System/currentTimeMillis))})

(defn- wrap-root
  "Responds with 404 to all paths except the root."
  [handler]
  (fn [request]
    (if (= "/" (:uri request))
      (handler request)
      {:status 404 :headers {"Content-Type" "text/plain"} :body "Not Found"})))

(defn- run-jetty
  "Runs Jetty with a request thread per core. The pool has three more threads: an acceptor, a
  selector, and one that Jetty reserves for the selector's work."
  [handler host port cpus]
  (let [threads (+ 3 cpus)]
    (jetty/run-jetty handler
                     {:host host
                      :port port
                      :min-threads threads
                      :max-threads threads
                      :send-server-version? false
                      :configurator
                      (fn [^Server server]
                        (.setReservedThreads ^QueuedThreadPool (.getThreadPool server) 1))})))

(defn- ring-version []
  (with-open [in (.getResourceAsStream (class run-jetty)
                                       "/META-INF/maven/ring/ring-core/pom.properties")]
    (.getProperty (doto (java.util.Properties.) (.load in)) "version")))

(defn -main [technique]
  (if (= technique "--version")
    (println (str "Ring " (ring-version) ", Jetty " (Server/getVersion) ", "
                  (io.undertow.Version/getFullVersionString) ", Clojure " (clojure-version) ", "
                  (System/getProperty "java.vm.name") " " (Runtime/version)))
    (let [host (System/getenv "HOST")
          port (parse-long (System/getenv "PORT"))
          cpus (parse-long (System/getenv "CPUS"))]
      (case technique
        "hello" (run-jetty (wrap-root hello) host port cpus)
        "tutorial" (run-jetty (wrap-root tutorial) host port cpus)
        "nocontenttype" (run-jetty (wrap-root nocontenttype) host port cpus)
        "handler" (run-jetty (wrap-root handler) host port cpus)
        "lazy" (with-redefs [servlet/build-request-map lazy-request/->LazyRequest]
                 (run-jetty (wrap-root handler) host port cpus))
        "undertow" (undertow/run-undertow (wrap-root tutorial) host port cpus)))))
