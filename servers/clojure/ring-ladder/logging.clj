(ns logging
  "Ways to log a request. Each way is a map: :log is a function of the request, and :finish
  returns once all log lines are written."
  (:require [clojure.tools.logging :as log])
  (:import [org.apache.logging.log4j LogManager]))

(defn- print-request
  "Prints a request. `println` writes a map piece by piece, so a lock keeps lines of threads apart."
  [request]
  (locking System/out (println request)))

(def ^:private printed {:log print-request :finish flush})

;; log4j2.xml determines whether the logger writes, queues or drops a request.
(def ^:private logged {:log #(log/info %) :finish #(LogManager/shutdown)})

(defn technique
  "Returns the way in which a version logs, or nil if it does not log."
  [rung]
  (case rung
    ("log" "log-middleware" "log-limited" "log-async-after") logged
    "log-timbre" {:log (requiring-resolve 'timbre-log/log) :finish flush}
    "log-println" printed
    "log-println-async" ((requiring-resolve 'channel/waiting) printed)
    "log-println-async-dropping" ((requiring-resolve 'channel/forgetful) printed)
    "log-async-before" ((requiring-resolve 'channel/waiting) logged)
    nil))
