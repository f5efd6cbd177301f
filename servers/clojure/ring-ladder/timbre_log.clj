(ns timbre-log
  "The benchmark's own logger: Timbre, printing to standard output."
  (:require [taoensso.timbre :as timbre]))

(timbre/merge-config!
 {:appenders {:println {:enabled? true
                        :fn (fn [{:keys [output_]}]
                              (locking System/out (println (force output_))))}}})

(defn log [request] (timbre/info request))
