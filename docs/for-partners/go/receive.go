// Receives webhooks with the standard library:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… go run receive.go 8080
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

type object = map[string]any

var (
	bearer = regexp.MustCompile(`^(?i:bearer) (([\w-]+)\.([\w-]+))\.([\w-]{42}[AEIMQUYcgkosw048])$`)
	typ    = regexp.MustCompile(`^(?i:(application/)?jwt)$`)
	id     = regexp.MustCompile(`^\P{Cc}{1,255}$`)
	name   = regexp.MustCompile(`^[\w-]+(\.[\w-]+)+$`)
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// From Go 1.24 on, add sha3-256, sha3-384 and sha3-512 of crypto/sha3.
	digests = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	handled sync.Map // in production: a unique column, written in the transaction of the effect
	refused = errors.New("refused")
)

func decode(segment string) (object, bool) {
	text, _ := base64.RawURLEncoding.DecodeString(segment)
	var value object
	if !utf8.Valid(text) || json.Unmarshal(text, &value) != nil {
		return nil, false
	}
	// encoding/json keeps the last of repeated members, so the colons outside strings are counted.
	return value, bytes.Count(quoted.ReplaceAll(text, nil), []byte(":")) == members(value)
}

func members(value any) (count int) {
	if list, ok := value.([]any); ok {
		for _, one := range list {
			count += members(one)
		}
	}
	if own, ok := value.(object); ok {
		for _, one := range own {
			count += 1 + members(one)
		}
	}
	return
}

func has(value object, names ...string) bool {
	for _, name := range names {
		if _, ok := value[name]; ok {
			return true
		}
	}
	return false
}

func verify(authorization string) (object, object, error) {
	part := bearer.FindStringSubmatch(authorization)
	if part == nil {
		return nil, nil, refused
	}
	mac := hmac.New(sha256.New, []byte(os.Getenv("WEBHOOK_SECRET")))
	mac.Write([]byte(part[1]))
	signature, _ := base64.RawURLEncoding.DecodeString(part[4])
	header, isHeader := decode(part[2])
	claims, areClaims := decode(part[3])
	if !hmac.Equal(mac.Sum(nil), signature) || !isHeader || !areClaims {
		return nil, nil, refused
	}
	kind, _ := header["typ"].(string)
	jti, _ := claims["jti"].(string)
	txn, _ := claims["txn"].(string)
	iat, hasIat := claims["iat"].(float64)
	exp, hasExp := claims["exp"].(float64)
	nbf, hasNbf := claims["nbf"].(float64)
	webhook, _ := claims["webhook"].(object)
	event, _ := webhook["event"].(string)
	_, isObject := webhook["data"].(object)
	now := float64(time.Now().UnixMilli()) / 1000
	if header["alg"] == "HS256" && typ.MatchString(kind) && !has(header, "crit", "b64", "zip") &&
		claims["iss"] == os.Getenv("WEBHOOK_ISSUER") && !has(claims, "aud") &&
		id.MatchString(jti) && (id.MatchString(txn) || !has(claims, "txn")) &&
		hasIat && hasExp && (hasNbf || !has(claims, "nbf")) && iat < exp && exp <= iat+3600 &&
		math.Max(iat, nbf)-60 <= now && now < exp+60 &&
		name.MatchString(event) && (isObject || !has(webhook, "data")) {
		return claims, webhook, nil
	}
	return nil, nil, refused
}

func payload(webhook object, request *http.Request) (data any, err error) {
	var body []byte
	if request.Method == "POST" {
		body, err = io.ReadAll(http.MaxBytesReader(nil, request.Body, 32<<20))
	}
	if err != nil {
		return nil, err
	}
	if len(body) == 0 && !has(webhook, "hash") {
		return webhook["data"], nil
	}
	stamp, _ := webhook["hash"].(string)
	algorithm, expected, _ := strings.Cut(stamp, ":")
	create := digests[algorithm]
	if create == nil || request.Method != "POST" {
		return nil, refused
	}
	digest := create()
	digest.Write(body)
	if !hmac.Equal([]byte(hex.EncodeToString(digest.Sum(nil))), []byte(strings.ToLower(expected))) {
		return nil, refused
	}
	if len(body) > 0 && strings.Contains(request.Header.Get("Content-Type"), "json") {
		if !utf8.Valid(body) || json.Unmarshal(body, &data) != nil {
			return nil, refused
		}
		return data, nil
	}
	return body, nil
}

func receive(response http.ResponseWriter, request *http.Request) {
	header := response.Header()
	header.Set("Cache-Control", "no-store")
	if request.Method != "HEAD" && request.Method != "POST" {
		header.Set("Allow", "HEAD, POST")
		response.WriteHeader(405)
		return
	}
	claims, webhook, err := verify(strings.Join(request.Header["Authorization"], ", "))
	if err != nil || request.Method == "HEAD" && request.ContentLength > 0 {
		header.Set("Connection", "close") // a body that is not read must not be taken for the next request
	}
	if err != nil {
		header.Set("WWW-Authenticate", `Bearer realm="webhooks"`)
		response.WriteHeader(401)
		return
	}
	data, err := payload(webhook, request)
	if err != nil {
		response.WriteHeader(400)
		return
	}
	id := claims["jti"]
	if has(claims, "txn") {
		id = claims["txn"]
	}
	if known, isKnown := handled.Load(id); isKnown && reflect.DeepEqual(known, data) {
		header.Set("Webhook-Duplicate", "true")
	} else if isKnown {
		response.WriteHeader(401)
		return
	} else {
		fmt.Println(webhook["event"], data) // your handler
		handled.Store(id, data)
	}
	response.WriteHeader(204)
}

func main() {
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(receive)))
}
