{-# LANGUAGE OverloadedStrings #-}

-- | Warp, with a lightweight thread of the runtime for each connection.
module Main (main) where

import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 (ByteString, length, pack)
import Data.Function ((&))
import Data.String (fromString)
import Data.Version (showVersion)
import Network.HTTP.Types
import Network.Wai (Application, Response, pathInfo, requestMethod, responseBuilder)
import Network.Wai.Handler.Warp
import Network.Wai.Handler.WarpTLS (runTLS, tlsSettings)
import System.Environment (getArgs, getEnv, lookupEnv)
import System.Info (fullCompilerVersion)
import Prelude hiding (length)

-- | A page with a content length. Without the length, Warp would send the page in chunks.
page :: Status -> ResponseHeaders -> ByteString -> Response
page status more body = responseBuilder status (text : size : more) (byteString body)
  where
    text = (hContentType, "text/plain")
    size = (hContentLength, pack (show (length body)))

answer :: Application
answer request respond = respond $ case pathInfo request of
  [] | requestMethod request `elem` ["GET", "HEAD"] -> page status200 [] "Hello, World!"
     | otherwise -> page status405 [("Allow", "GET, HEAD")] "Method Not Allowed"
  _ -> page status404 [] "Not Found"

main :: IO ()
main = do
  arguments <- getArgs
  if arguments == ["--version"]
    then putStrLn $ "warp " <> warpVersion <> ", ghc " <> showVersion fullCompilerVersion
    else do
      host <- fromString <$> getEnv "HOST"
      port <- read <$> getEnv "PORT"
      let settings = defaultSettings & setPort port & setHost host
      certificate <- lookupEnv "TLS_CERT"
      case certificate of
        Nothing -> runSettings settings answer
        Just file -> do
          key <- getEnv "TLS_KEY"
          runTLS (tlsSettings file key) settings answer
