package berth_test

import (
	"testing"

	"github.com/berth-run/berth"
)

// An object that is not found is named by its noun and id.
func TestNotFound(t *testing.T) {
	err := berth.NotFound("Vector store", berth.VectorStoreID("vs_1"))
	if err.Code != berth.CodeNotFound || err.Message != "Vector store with id 'vs_1' not found." || err.Param != "" ||
		err.Err != nil {
		t.Errorf("got %#v", err)
	}
}
