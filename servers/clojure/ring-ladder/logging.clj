(ns logging
  "Ways to log a request. Each is a map of :log, a function of the request, and :finish, which
  returns once everything logged is written."
  (:require [clojure.tools.logging :as log])
  (:import [org.apache.logging.log4j LogManager]))

(defn- print-request
  "`println` writes a map piece by piece; the lock keeps the lines of two threads apart."
  [request]
  (locking System/out (println request)))

(def ^:private printed {:log print-request :finish flush})

;; log4j2.xml determines whether the logger writes, queues or drops a request.
(def ^:private logged {:log #(log/info %) :finish #(LogManager/shutdown)})

(defn technique
  "The way to log that a rung is about; nil for a rung that does not."
  [rung]
  (case rung
    ("log" "log-middleware" "log-limited" "log-async-after") logged
    "log-timbre" {:log (requiring-resolve 'timbre-log/log) :finish flush}
    "log-println" printed
    "log-println-async" ((requiring-resolve 'channel/waiting) printed)
    "log-println-async-dropping" ((requiring-resolve 'channel/forgetful) printed)
    "log-async-before" ((requiring-resolve 'channel/waiting) logged)
    nil))
