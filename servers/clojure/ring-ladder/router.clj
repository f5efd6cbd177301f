(ns router
  "Routes as in the benchmark's router. A route such as \"get /api/query/:name\" is a path through a
  tree. Each request is written as such a line, split into pieces, and looked up in the tree."
  (:require [clojure.string :as string]
            [ring.util.codec :as codec]))

(defn- plant [node [piece & pieces] handler]
  (cond
    (nil? piece) (assoc node :handler handler)
    (string/starts-with? piece ":") (-> node
                                        (assoc :parameter (keyword (subs piece 1)))
                                        (update :any plant pieces handler))
    :else (update-in node [:named piece] plant pieces handler)))

(defn- walk [{:keys [handler named any parameter]} [piece & pieces] params]
  (if (nil? piece)
    (when handler [handler params])
    (or (some-> (get named piece) (walk pieces params))
        (some-> any (walk pieces (assoc params parameter (codec/url-decode piece)))))))

(defn- query-params [query]
  (let [params (codec/form-decode (or query ""))]
    (if (map? params) (update-keys params keyword) {})))

(defn router
  "Returns a handler that passes each request to the handler of its route. The request gets :params
  from path and query."
  [routes otherwise]
  (let [tree (reduce-kv (fn [tree route handler] (plant tree (string/split route #"/") handler))
                        {} routes)]
    (fn [{:keys [request-method uri query-string] :as request}]
      (let [line (str (name request-method) " " uri "?" query-string)
            [path query] (string/split line #"\?" 2)
            [handler params] (walk tree (string/split path #"/") (query-params query))]
        (if handler
          (handler (assoc request :params params))
          (otherwise request))))))
