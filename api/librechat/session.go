package librechat

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/guest"
)

// A sessionID is the id of a session: its kind, random text, and a digest that binds it to a user.
type sessionID string

// Kinds of sessions. Code runs in a copy of what was uploaded, because a client may upload a file for several users.
const (
	uploads = "u"
	runs    = "x"
)

const (
	idLength  = 21
	tagLength = 6
	maxUser   = 256 // bytes
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{21}$`)

// digest returns the first n letters of a digest.
func digest(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:n]
}

// newSession returns the id of a new session of a user.
func newSession(kind, user string) sessionID {
	start := kind + rand.Text()[:idLength-tagLength-1]
	return sessionID(start + digest(tagLength, start, user))
}

// of reports whether a session is that of a user. A request that names none has the session of any, by its id.
func (s sessionID) of(user string) bool {
	start := string(s[:idLength-tagLength])
	return strings.HasPrefix(start, uploads) || user == "" ||
		string(s[idLength-tagLength:]) == digest(tagLength, start, user)
}

// own reports whether code of a user may run in a session.
func (s sessionID) own(user string) bool {
	start := string(s[:idLength-tagLength])
	return strings.HasPrefix(start, runs) && string(s[idLength-tagLength:]) == digest(tagLength, start, user)
}

// valid reports whether a text has the form of a session's id.
func valid(id string) bool {
	return idPattern.MatchString(id) && (strings.HasPrefix(id, uploads) || strings.HasPrefix(id, runs))
}

// name returns the name of the container of a session.
func (s sessionID) name() string { return "librechat/" + string(s) }

func unknownSession(id string) error {
	return berth.NotFound("Session", id[:min(len(id), 64)])
}

// user returns the user whom a request names, or "".
func user(r *http.Request, field string) (string, error) {
	name := field
	for _, header := range []string{"User-Id", "X-User-Id"} {
		value := r.Header.Get(header)
		if value != "" && name != "" && value != name {
			return "", berth.Invalid("", "The request names two users.")
		}
		if value != "" {
			name = value
		}
	}
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	if len(name) > maxUser || !utf8.ValidString(name) || strings.ContainsFunc(name, control) {
		return "", berth.Invalid("", "A user id has at most %d bytes without control characters.", maxUser)
	}
	return name, nil
}

// A visit is a request to a session.
type visit struct {
	door    *Door
	x       *exchange.Exchange
	r       *http.Request
	session sessionID
	client  *guest.Client
	home    string // the guest's path of berth.WorkDir
}

// open begins a visit to a container. If another server has answered the request, there is none.
func (d *Door) open(x *exchange.Exchange, r *http.Request, c berth.Caller, s sessionID, id berth.ContainerID) (v *visit,
	release func(), err error) {
	if done, err := x.ToContainer(r, c.Project, id); done || err != nil {
		return nil, nil, err
	}
	client, release, err := d.Containers.Access().Guest(r.Context(), c, id)
	if err != nil {
		return nil, nil, err
	}
	v = &visit{door: d, x: x, r: r, session: s, client: client}
	if v.home, err = client.WorkDir(r.Context()); err != nil {
		release()
		return nil, nil, v.guestError(err)
	}
	return v, release, nil
}

// known returns the handler of a request to the session of the path.
func (d *Door) known(serve func(*visit) error) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		name, err := user(r, "")
		if err != nil {
			return err
		}
		id := r.PathValue("session")
		if !valid(id) || !sessionID(id).of(name) {
			return unknownSession(id)
		}
		box, err := d.Sessions.Existing(r.Context(), c.Project, sessionID(id).name())
		if err != nil {
			return err
		}
		if box == "" {
			return unknownSession(id)
		}
		v, release, err := d.open(x, r, c, sessionID(id), box)
		if v == nil || err != nil {
			return err
		}
		defer release()
		return serve(v)
	}
}

// create returns the container of a session, which it makes if there is none.
func (d *Door) create(r *http.Request, c berth.Caller, s sessionID) (berth.ContainerID, error) {
	return d.Sessions.Find(r.Context(), c, session.Spec{Name: s.name(), Ends: true})
}

// guestError returns the client's error for a failed call of the guest.
func (v *visit) guestError(err error) error {
	switch e, ok := errors.AsType[*berth.Error](err); {
	case ok:
		return e
	case v.r.Context().Err() != nil:
		return v.r.Context().Err()
	case errors.Is(err, fs.ErrNotExist):
		return berth.Errorf(berth.CodeNotFound, "There is no such file.")
	case errors.Is(err, guest.ErrNoSpace):
		return berth.Errorf(berth.CodeInsufficientStorage, "The disk of the session is full.")
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: "The container of the session does not answer. Try again in a moment."}
}
