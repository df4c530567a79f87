package enduser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// settingsLife is how long the settings of a project are cached. Another server of a cluster may change them.
const settingsLife = time.Second

// A settingsCache holds the settings of projects that were read a moment ago.
type settingsCache struct {
	mu    sync.Mutex
	known map[berth.ProjectID]cachedSettings
}

type cachedSettings struct {
	settings berth.EndUserSettings
	read     time.Time
}

// maxCached bounds the projects whose settings are cached.
const maxCached = 10_000

func settingsKey() store.ObjectKey {
	return store.ObjectKey{Kind: store.KindEndUserSettings, ID: "settings"}
}

// Settings returns the settings of a project, with the configuration's where it has none.
func (s *Service) Settings(ctx context.Context, p berth.ProjectID) (*berth.EndUserSettings, error) {
	now := s.Clock.Now()
	s.settings.mu.Lock()
	cached, known := s.settings.known[p]
	s.settings.mu.Unlock()
	own := cached.settings
	if !known || now.Sub(cached.read) >= settingsLife {
		o, err := s.Objects.GetObject(ctx, p, settingsKey())
		switch {
		case errors.Is(err, store.ErrNotFound):
			own = berth.EndUserSettings{}
		case err != nil:
			return nil, fmt.Errorf("read the settings of end users: %w", err)
		default:
			own = berth.EndUserSettings{}
			if err := json.Unmarshal(o.Body, &own); err != nil {
				return nil, fmt.Errorf("decode the settings of end users: %w", err)
			}
		}
		s.settings.put(p, own, now)
	}
	own.Object = "end_user.settings"
	if own.Enabled == nil {
		own.Enabled = new(s.Enabled)
	}
	if own.Computer == "" {
		own.Computer = s.Computer
	}
	own.Limits = own.Limits.Or(s.Limits)
	return &own, nil
}

// put caches settings.
func (c *settingsCache) put(p berth.ProjectID, settings berth.EndUserSettings, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCached {
		c.known = map[berth.ProjectID]cachedSettings{}
	}
	c.known[p] = cachedSettings{settings, at}
}

// SetSettings replaces the settings of a project.
func (s *Service) SetSettings(ctx context.Context, p berth.ProjectID,
	settings berth.EndUserSettings) (*berth.EndUserSettings, error) {
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode the settings of end users: %w", err)
	}
	err = s.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: settingsKey(), CreatedAt: s.Clock.Now().Unix(),
		Body: body})
	if errors.Is(err, store.ErrExists) {
		_, err = s.Objects.UpdateObject(ctx, p, settingsKey(), func(o *store.Object) error {
			o.Body = body
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("save the settings of end users: %w", err)
	}
	s.settings.put(p, settings, s.Clock.Now())
	return s.Settings(ctx, p)
}
