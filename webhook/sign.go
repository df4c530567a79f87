package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// secretPrefix is the prefix of secrets; the rest is base64.
const secretPrefix = "whsec_"

func newSecret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// sign adds the headers of an attempt according to the Standard Webhooks.
func (e *endpoint) sign(h http.Header, d *Delivery, now time.Time) {
	signature := sign(e.Secret, d.ID, now, d.Payload)
	if e.Old != "" && now.Unix() < e.OldUntil {
		signature += " " + sign(e.Old, d.ID, now, d.Payload)
	}
	h.Set("webhook-id", d.ID)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("webhook-signature", signature)
}

// signSandboxEvent adds the headers of an attempt as E2B's API has them: the id of the delivery is that of the
// attempt, and the signature is no MAC but the hash of the secret and the body.
func (e *endpoint) signSandboxEvent(h http.Header, d *Delivery) {
	sum := sha256.Sum256(append([]byte(e.Secret), d.Payload...))
	h.Set("e2b-webhook-id", string(e.ID))
	h.Set("e2b-delivery-id", berth.UUID(d.ID+"\x00"+strconv.Itoa(len(d.Attempts))))
	h.Set("e2b-signature-version", "v1")
	h.Set("e2b-signature", base64.RawStdEncoding.EncodeToString(sum[:]))
}

// sign returns the signature of a message according to the Standard Webhooks.
func sign(secret, id string, at time.Time, body []byte) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix)) // it was made by newSecret
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
