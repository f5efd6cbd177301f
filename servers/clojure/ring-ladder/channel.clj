(ns channel
  "Logging behind a core.async channel; apart from the rest, since core.async takes long to load."
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
  "A thread logs what comes through the channel. A full one makes the request wait: no line is
  lost."
  [technique]
  (queued (async/buffer 100) technique))

(defn forgetful
  "The same, and a full channel forgets its oldest request, as the published benchmark's did."
  [technique]
  (queued (async/sliding-buffer 100) technique))
