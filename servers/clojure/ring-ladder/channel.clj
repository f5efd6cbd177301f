(ns channel
  "Logging behind a core.async channel, in a separate file because core.async takes long to load."
  (:require [clojure.core.async :as async]))

(defn- queued [buffer {:keys [log finish]}]
  (let [requests (async/chan buffer)
        done (async/thread
               (loop []
                 (when-some [request (async/<!! requests)]
                   (log request)
                   (recur))))]
    {:log #(async/>!! requests %)
     :finish (fn []
               (async/close! requests)
               (async/<!! done)
               (finish))}))

(defn waiting
  "A thread logs what comes through the channel. If the channel is full, the request waits, so no
  line is lost."
  [technique]
  (queued (async/buffer 100) technique))

(defn forgetful
  "Like `waiting`, but a full channel drops its oldest request, as in the published benchmark."
  [technique]
  (queued (async/sliding-buffer 100) technique))
