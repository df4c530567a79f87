package enduser

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// Sources are where requests name users and chats, the first that has a value counts: "header:NAME", "metadata:KEY",
// and the fields "safety_identifier", "user" and "prompt_cache_key".
type Sources struct{ User, Chat []string }

// MaxName bounds the names of users and chats, in bytes.
const MaxName = 512

// checkName checks the name of a user or a chat. Names are compared byte by byte: Berth neither trims nor normalises
// them, so that no two users become one.
func checkName(where, name string) error {
	if len(name) > MaxName || !utf8.ValidString(name) || strings.ContainsFunc(name, isControl) {
		return berth.Invalid(where, "Invalid '%s': the name of an end user or a chat has at most %d bytes of UTF-8 "+
			"without control characters.", where, MaxName)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 }

// FromHeader adds to a caller the subject that the headers of its request name; header returns the first value of one.
// It creates no record.
func (s *Service) FromHeader(ctx context.Context, c berth.Caller, header func(name string) string) (berth.Caller,
	error) {
	return s.identify(ctx, c, func(source string) string {
		name, found := strings.CutPrefix(source, "header:")
		if !found {
			return ""
		}
		return header(name)
	})
}

// FromRequest adds to a caller the subject that the fields of a request for a response name, where its headers named
// none. It creates the record of a new user, and refuses a user who has spent the limit or is being forgotten.
func (s *Service) FromRequest(ctx context.Context, c berth.Caller, req *berth.ResponseRequest) (berth.Caller, error) {
	c, err := s.identify(ctx, c, func(source string) string {
		if key, found := strings.CutPrefix(source, "metadata:"); found {
			return req.Metadata[key]
		}
		field := map[string]*string{"safety_identifier": req.SafetyIdentifier, "user": req.User,
			"prompt_cache_key": req.PromptCacheKey}[source]
		if field == nil {
			return ""
		}
		return *field
	})
	if err != nil || c.Subject == nil {
		return c, err
	}
	if c, err = s.Ensure(ctx, c); err != nil {
		return c, err
	}
	return c, s.checkFunds(ctx, c)
}

// Named returns a caller who acts for a user.
func (s *Service) Named(ctx context.Context, c berth.Caller, user string) (berth.Caller, error) {
	settings, err := s.Settings(ctx, c.Project)
	if err != nil {
		return c, err
	}
	if !*settings.Enabled {
		return c, berth.Invalid("berth.user", "End users are not turned on for this project. "+
			"Turn them on with POST /v1/end_user_settings.")
	}
	if err := checkName("berth.user", user); err != nil {
		return c, err
	}
	of := berth.Subject{User: user}
	if c.Subject != nil {
		of.Chat = c.Subject.Chat
	}
	c.Subject = s.complete(c.Project, of, settings)
	return c, nil
}

// identify completes the subject of a caller by what value returns for the sources. If end users are off, the caller
// has none, whatever the request says.
func (s *Service) identify(ctx context.Context, c berth.Caller, value func(source string) string) (berth.Caller,
	error) {
	var got berth.Subject
	if c.Subject != nil {
		got = *c.Subject
	}
	before := got
	wrong := errors.Join(pick(&got.User, s.Sources.User, value), pick(&got.Chat, s.Sources.Chat, value))
	if got.User == before.User && got.Chat == before.Chat && wrong == nil {
		return c, nil
	}
	settings, err := s.Settings(ctx, c.Project)
	if err != nil || !*settings.Enabled {
		return c, err
	}
	if wrong != nil {
		return c, wrong
	}
	c.Subject = s.complete(c.Project, got, settings)
	return c, nil
}

// pick sets an empty name to that of the first source that has one.
func pick(into *string, sources []string, value func(source string) string) error {
	for _, source := range sources {
		if *into != "" {
			break
		}
		name := value(source)
		if err := checkName(source, name); err != nil {
			return err
		}
		*into = name
	}
	return nil
}

// complete returns a subject with the id of its user and the name of its container.
func (s *Service) complete(p berth.ProjectID, of berth.Subject, settings *berth.EndUserSettings) *berth.Subject {
	of.EndUser = berth.NewEndUserID(p, of.User, of.Chat)
	of.IdleMinutes, of.Limits, of.Computer = s.IdleMinutes, settings.Limits, ""
	switch {
	case settings.Computer == berth.ComputerChat && of.Chat != "":
		of.Computer = berth.ComputerName(of.User, of.Chat)
	case settings.Computer == berth.ComputerUser && of.User != "":
		of.Computer = berth.ComputerName(of.User, "")
	case settings.Computer == berth.ComputerUser && of.Chat != "":
		of.Computer = berth.ComputerName("", of.Chat)
	}
	return &of
}
