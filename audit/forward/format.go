package forward

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth/audit"
)

// A Format is how entries are written.
type Format string

// The formats.
const (
	Berth Format = "berth" // as in the record
	ECS   Format = "ecs"   // Elastic Common Schema
	OCSF  Format = "ocsf"  // Open Cybersecurity Schema Framework
)

// encode returns an entry as a JSON object.
func (f Format) encode(e *audit.Entry) ([]byte, error) {
	var v any = e
	switch f {
	case ECS:
		v = ecs(e)
	case OCSF:
		v = ocsf(e)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	return raw, nil
}

// refused reports whether an entry is about something that was not allowed.
func refused(e *audit.Entry) bool {
	return e.Action == audit.EgressRefused || e.Action == audit.PersonRefused || e.Refused > 0
}

// kind returns what an action is about: "container", "key", "egress" and so on.
func kind(a audit.Action) string {
	of, _, _ := strings.Cut(string(a), ".")
	return of
}

// object is a JSON object. add leaves out empty values.
type object map[string]any

func (o object) add(key string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
	case int64:
		if v == 0 {
			return
		}
	case object:
		if len(v) == 0 {
			return
		}
	}
	o[key] = value
}

// ecs returns an entry in the fields of ECS 8.11: https://www.elastic.co/guide/en/ecs/8.11/ecs-field-reference.html.
// What has no field there is below "berth".
func ecs(e *audit.Entry) object {
	categories := map[string][2]string{"egress": {"network", "connection"}, "person": {"authentication", "info"},
		"key": {"iam", "change"}, "project": {"iam", "change"}, "file": {"file", "change"}}
	category, ok := categories[kind(e.Action)]
	if !ok {
		category = [2]string{"configuration", "change"}
	}
	outcome := "success"
	if refused(e) {
		outcome = "failure"
		if category[0] == "network" {
			category[1] = "denied"
		}
	}
	event := object{"kind": "event", "category": []string{category[0]}, "type": []string{category[1]},
		"action": string(e.Action), "outcome": outcome, "sequence": e.Seq, "hash": e.Hash.String(), "provider": "berth",
		"module": "audit"}
	event.add("reason", e.Reason)
	event.add("duration", e.Milliseconds*int64(time.Millisecond))
	o := object{"@timestamp": e.Time.UTC().Format(time.RFC3339Nano), "ecs": object{"version": "8.11.0"}, "event": event,
		"berth": e}
	id := func(id string) object {
		one := object{}
		one.add("id", id)
		return one
	}
	user := id(string(e.Key))
	user.add("name", e.Person)
	o.add("user", user)
	o.add("organization", id(string(e.Project)))
	o.add("container", id(string(e.Container)))
	to := object{}
	to.add("domain", e.Host)
	to.add("ip", e.Address)
	to.add("port", int64(e.Port))
	to.add("bytes", e.Received)
	o.add("destination", to)
	from := object{}
	from.add("bytes", e.Sent)
	o.add("source", from)
	return o
}

// The classes of OCSF 1.3 that entries belong to: https://schema.ocsf.io/1.3.0/.
const (
	accountChange   = 3001
	authentication  = 3002
	networkActivity = 4001
	apiActivity     = 6003
)

// ocsf returns an entry as an event of OCSF 1.3. What has no attribute there is below "unmapped".
func ocsf(e *audit.Entry) object {
	class, activity := apiActivity, 99
	switch last := string(e.Action); {
	case e.Action == audit.PersonSignedIn || e.Action == audit.PersonRefused:
		class, activity = authentication, 1 // logon
	case e.Action == audit.PersonSignedOut:
		class, activity = authentication, 2
	case kind(e.Action) == "person":
		class = accountChange
	case e.Action == audit.EgressConnected:
		class, activity = networkActivity, 1 // open
	case e.Action == audit.EgressEnded:
		class, activity = networkActivity, 2 // close
	case e.Action == audit.EgressRefused:
		class, activity = networkActivity, 5 // refuse
	case kind(e.Action) == "egress":
		class, activity = networkActivity, 6 // traffic
	case strings.HasSuffix(last, ".created"):
		activity = 1
	case strings.HasSuffix(last, ".updated") || strings.HasSuffix(last, ".changed"):
		activity = 3
	case strings.HasSuffix(last, ".deleted") || strings.HasSuffix(last, ".erased") ||
		strings.HasSuffix(last, ".ended") || strings.HasSuffix(last, ".expired") || strings.HasSuffix(last, ".revoked"):
		activity = 4
	}
	status, severity := 1, 1
	if refused(e) {
		status, severity = 2, 2
	}
	o := object{"class_uid": class, "category_uid": class / 1000, "activity_id": activity,
		"type_uid": class*100 + activity, "activity_name": string(e.Action), "severity_id": severity,
		"status_id": status, "time": e.Time.UnixMilli(),
		"metadata": object{"version": "1.3.0", "uid": e.Hash.String(), "sequence": e.Seq,
			"product": object{"name": "Berth", "vendor_name": "Berth"}},
		"unmapped": e}
	o.add("status_detail", e.Reason)
	o.add("duration", e.Milliseconds)
	user := object{}
	user.add("uid", string(e.Key))
	user.add("name", person(e))
	if class == authentication || class == accountChange {
		o.add("user", user)
	} else {
		actor := object{}
		actor.add("user", user)
		o.add("actor", actor)
	}
	if class == apiActivity {
		o["api"] = object{"operation": string(e.Action)}
		var resources []object
		for _, of := range [][2]string{{"container", string(e.Container)}, {kind(e.Action), e.Object}} {
			if of[1] != "" {
				resources = append(resources, object{"type": of[0], "uid": of[1]})
			}
		}
		if len(resources) > 0 {
			o["resources"] = resources
		}
	}
	if class == networkActivity {
		to := object{}
		to.add("hostname", e.Host)
		to.add("ip", e.Address)
		to.add("port", int64(e.Port))
		o.add("dst_endpoint", to)
		traffic := object{}
		traffic.add("bytes_out", e.Sent)
		traffic.add("bytes_in", e.Received)
		o.add("traffic", traffic)
	}
	return o
}

// person returns the name of the person whom an entry is about, or who made the request.
func person(e *audit.Entry) string {
	if kind(e.Action) == "person" {
		return e.Name
	}
	return e.Person
}
