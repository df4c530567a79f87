package api

import _ "net/http"
