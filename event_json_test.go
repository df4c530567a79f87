package berth_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/berth-run/berth"
	"github.com/google/go-cmp/cmp"
)

var textDeltas = []berth.Event{
	{Type: berth.EventOutputTextDelta, SequenceNumber: 4, ItemID: "msg_1", OutputIndex: new(int),
		ContentIndex: new(int), Delta: berth.StringDelta("word "), Logprobs: &[]json.RawMessage{}},
	{Type: berth.EventReasoningSummaryDelta, SequenceNumber: 1 << 40, ItemID: "rs_1", OutputIndex: new(3),
		SummaryIndex: new(int), Delta: berth.StringDelta("line\n\"quoted\" \\ \x01")},
	{Type: berth.EventFunctionArgumentsDelta, Delta: berth.StringDelta("")},
	{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta("<b> & \u2028 é 漢 \xff")},
	{Type: berth.EventOutputTextDelta, Delta: json.RawMessage(`"€ <"`)},
	{Type: berth.EventShellOutputDelta, Delta: json.RawMessage(`{"stdout":"x"}`)},
	{Type: `odd"type`, ItemID: `<`, Delta: berth.StringDelta("x")},
	{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta("x"),
		Logprobs: &[]json.RawMessage{json.RawMessage("1")}},
	{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta("x"), Logprobs: new([]json.RawMessage)},
}

// sameJSON checks AppendJSON and DecodeEvent against encoding/json.
func sameJSON(t *testing.T, ev berth.Event) {
	t.Helper()
	want, err := json.Marshal(ev)
	if err != nil {
		t.Skip(err)
	}
	got, err := ev.AppendJSON([]byte("before"))
	if err != nil || string(got) != "before"+string(want) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	sameEvent(t, want)
}

func sameEvent(t *testing.T, data []byte) {
	t.Helper()
	var want berth.Event
	wantErr := json.Unmarshal(data, &want)
	got, err := berth.DecodeEvent(data)
	if (err == nil) != (wantErr == nil) {
		t.Errorf("%s: got %v, want %v", data, err, wantErr)
	}
	if wantErr == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got, want %s", data, cmp.Diff(got, want))
	}
}

func TestEventJSONIsThatOfEncodingJSON(t *testing.T) {
	for _, ev := range textDeltas {
		sameJSON(t, ev)
	}
}

// A field that a later version adds must not be lost in the JSON of a text delta.
func TestEventJSONHasEveryField(t *testing.T) {
	fields := reflect.TypeFor[berth.Event]()
	for i := range fields.NumField() {
		ev := textDeltas[0]
		fill(reflect.ValueOf(&ev).Elem().Field(i))
		t.Run(fields.Field(i).Name, func(t *testing.T) { sameJSON(t, ev) })
	}
}

// fill sets a value to one that is not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	}
}

func FuzzEventJSON(f *testing.F) {
	for _, ev := range textDeltas {
		data, _ := json.Marshal(ev)
		f.Add(string(ev.Type), ev.ItemID, []byte(ev.Delta), data)
	}
	f.Fuzz(func(t *testing.T, kind, item string, delta, data []byte) {
		sameEvent(t, data)
		ev := berth.Event{Type: berth.EventType(kind), ItemID: item, Delta: delta, OutputIndex: new(int)}
		if len(delta) > 0 {
			sameJSON(t, ev)
		}
	})
}

func BenchmarkEventJSON(b *testing.B) {
	ev := textDeltas[0]
	data, _ := json.Marshal(ev)
	b.Run("AppendJSON", func(b *testing.B) {
		for b.Loop() {
			_, _ = ev.AppendJSON(nil)
		}
	})
	b.Run("Marshal", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(ev)
		}
	})
	b.Run("DecodeEvent", func(b *testing.B) {
		for b.Loop() {
			_, _ = berth.DecodeEvent(data)
		}
	})
	b.Run("Unmarshal", func(b *testing.B) {
		for b.Loop() {
			var ev berth.Event
			_ = json.Unmarshal(data, &ev)
		}
	})
}
