(ns undertow
  "A Ring adapter for Undertow. A handler may block, so it runs on a worker thread."
  (:require [clojure.string :as string]
            [ring.core.protocols :as protocols])
  (:import [io.undertow Undertow]
           [io.undertow.server HttpHandler HttpServerExchange]
           [io.undertow.server.handlers BlockingHandler]
           [io.undertow.util HeaderValues Headers HttpString]
           [java.util Locale]))

(set! *warn-on-reflection* true)

(defn- headers-of [^HttpServerExchange exchange]
  (persistent!
   (reduce (fn [headers ^HeaderValues values]
             (assoc! headers
                     (.toLowerCase (str (.getHeaderName values)) Locale/ENGLISH)
                     (string/join "," values)))
           (transient {})
           (.getRequestHeaders exchange))))

(defn- request-of [^HttpServerExchange exchange]
  (let [length (.getRequestContentLength exchange)]
    {:server-port (.getHostPort exchange)
     :server-name (.getHostName exchange)
     :remote-addr (.getHostString (.getSourceAddress exchange))
     :uri (.getRequestURI exchange)
     :query-string (not-empty (.getQueryString exchange))
     :scheme (keyword (.getRequestScheme exchange))
     :request-method (keyword (.toLowerCase (str (.getRequestMethod exchange)) Locale/ENGLISH))
     :protocol (str (.getProtocol exchange))
     :headers (headers-of exchange)
     :content-type (.getFirst (.getRequestHeaders exchange) Headers/CONTENT_TYPE)
     :content-length (when-not (neg? length) length)
     :character-encoding (.getRequestCharset exchange)
     :body (.getInputStream exchange)}))

(defn- respond [^HttpServerExchange exchange {:keys [status headers body] :as response}]
  (.setStatusCode exchange status)
  (doseq [[header value] headers
          :let [header (HttpString. ^String header)]]
    (if (string? value)
      (.put (.getResponseHeaders exchange) header ^String value)
      (.putAll (.getResponseHeaders exchange) header value)))
  (if (string? body)
    (.send (.getResponseSender exchange) ^String body)
    (protocols/write-body-to-stream body response (.getOutputStream exchange))))

(defn run-undertow [handler host port cpus]
  (-> (Undertow/builder)
      (.addHttpListener (int port) ^String host)
      (.setIoThreads (int cpus))
      (.setWorkerThreads (int cpus))
      (.setHandler (BlockingHandler.
                    (reify HttpHandler
                      (handleRequest [_ exchange]
                        (respond exchange (handler (request-of exchange)))))))
      (.build)
      (.start)))
