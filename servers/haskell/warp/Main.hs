{-# LANGUAGE OverloadedStrings #-}

-- | Warp: a light thread of the runtime for each connection.
module Main (main) where

import Data.Function ((&))
import Data.Version (showVersion)
import Network.HTTP.Types (hContentType, status200, status404, status405)
import Network.Wai (Application, pathInfo, requestMethod, responseLBS)
import Network.Wai.Handler.Warp
import System.Environment (getArgs, getEnv)
import System.Info (fullCompilerVersion)

answer :: Application
answer request respond = respond $ case pathInfo request of
  [] | requestMethod request `elem` ["GET", "HEAD"] -> responseLBS status200 [text] "Hello, World!"
     | otherwise -> responseLBS status405 [text, ("Allow", "GET, HEAD")] "Method Not Allowed"
  _ -> responseLBS status404 [text] "Not Found"
  where
    text = (hContentType, "text/plain")

main :: IO ()
main = do
  arguments <- getArgs
  if arguments == ["--version"]
    then putStrLn $ "warp " <> warpVersion <> ", ghc " <> showVersion fullCompilerVersion
    else do
      port <- read <$> getEnv "PORT"
      runSettings (defaultSettings & setPort port & setHost "127.0.0.1") answer
