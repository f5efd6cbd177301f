(ns lazy-request
  "A Ring request that gets a value from the servlet only when its key is read."
  (:require [ring.util.servlet :as servlet])
  (:import [clojure.lang Associative Counted ILookup IPersistentMap MapEntry]
           [java.util Locale]
           [javax.servlet.http HttpServletRequest]))

(set! *warn-on-reflection* true)

;; Ring's own function, before it is replaced. All but simple lookups build the whole map.
(def ^:private whole servlet/build-request-map)

(def ^:private keys-of-a-request
  [:server-port :server-name :remote-addr :uri :query-string :scheme :request-method :protocol
   :headers :content-type :content-length :character-encoding :ssl-client-cert :body])

(deftype LazyRequest [^HttpServletRequest request]
  ILookup
  (valAt [this k] (.valAt this k nil))
  (valAt [_ k otherwise]
    (case k
      :server-port (.getServerPort request)
      :server-name (.getServerName request)
      :remote-addr (.getRemoteAddr request)
      :uri (.getRequestURI request)
      :query-string (.getQueryString request)
      :scheme (keyword (.getScheme request))
      :request-method (keyword (.toLowerCase (.getMethod request) Locale/ENGLISH))
      :protocol (.getProtocol request)
      :content-type (.getContentType request)
      :character-encoding (.getCharacterEncoding request)
      :body (.getInputStream request)
      (:headers :content-length :ssl-client-cert) (get (whole request) k)
      otherwise))

  IPersistentMap
  (assoc [_ k v] (assoc (whole request) k v))
  (assocEx [_ k v] (.assocEx ^IPersistentMap (whole request) k v))
  (without [_ k] (dissoc (whole request) k))

  Associative
  (containsKey [_ k] (boolean (some #{k} keys-of-a-request)))
  (entryAt [this k]
    (when (.containsKey this k) (MapEntry/create k (.valAt this k))))

  Counted
  (count [_] (count keys-of-a-request))
  (cons [_ entry] (conj (whole request) entry))
  (empty [_] {})
  (equiv [_ other] (= (whole request) other))
  (seq [_] (seq (whole request)))

  Iterable
  (iterator [_] (.iterator ^Iterable (whole request)))

  clojure.lang.IFn
  (invoke [this k] (.valAt this k))
  (invoke [this k otherwise] (.valAt this k otherwise)))
