package batch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/berth-run/berth"
)

// A finding is the result of the validation of an input file.
type finding struct {
	requests int
	model    string
	errors   []berth.BatchError
}

func (f *finding) add(line int, wrong *lineError) { f.errors = append(f.errors, wrong.report(line)) }

// inspect validates an input file. Its error means that the file cannot be read.
func inspect(ctx context.Context, r io.Reader, endpoint string) (*finding, error) {
	found, ids := &finding{}, map[[16]byte]bool{}
	for in := newLines(r); len(found.errors) < maxErrors; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line, number, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			if found.requests == 0 && len(found.errors) == 0 {
				found.add(0, &lineError{"empty_file", "input_file_id",
					"The input file is empty. Please ensure that the batch contains at least one request."})
			}
			return found, nil
		case errors.Is(err, errTooLong):
			found.add(number, &lineError{"line_too_long", "", fmt.Sprintf("This line is longer than the limit of %d bytes.",
				MaxLine)})
			continue
		case err != nil:
			return nil, fmt.Errorf("read input file: %w", err)
		}
		if found.requests++; found.requests > MaxRequests {
			found.add(0, &lineError{"too_many_tasks", "input_file_id",
				fmt.Sprintf("The number of requests in the batch file exceeds the limit of %d.", MaxRequests)})
			return found, nil
		}
		request, err := parse(line, number, endpoint)
		if wrong, ok := errors.AsType[*lineError](err); ok {
			found.add(number, wrong)
			continue
		}
		sum := sha256.Sum256([]byte(request.CustomID))
		id := [16]byte(sum[:16])
		if ids[id] {
			found.add(number, &lineError{"duplicate_custom_id", "custom_id",
				"The custom_id for this request is a duplicate of another request. The custom_id parameter must be unique for each request in a batch."})
			continue
		}
		ids[id] = true
		if len(ids) == 1 {
			found.model = request.Model
		} else if request.Model != found.model && endpoint == EndpointMessages {
			found.model = "" // messages of a batch may be for several models
		} else if request.Model != found.model {
			found.add(number, &lineError{"model_mismatch", "body.model",
				"The model provided for this request does not match the rest of the batch. Each batch must contain requests for a single model."})
		}
	}
	return found, nil
}
