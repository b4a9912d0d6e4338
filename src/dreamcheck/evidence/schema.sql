-- The evidence store of one study: evidence.sqlite.
--
-- Read it with any SQLite. Records are append-only; one generic table holds every kind, so a new
-- kind needs no migration. The views below give the known kinds typed columns.
--
-- Each "@version N" block below turns version N - 1 into N and runs in one transaction.
-- A released block is never edited: a change is a new block.

-- @version 1

-- Facts about the study, name -> value: the frozen text of study.toml and its digests, the
-- numerics profiles, the head of the chain.
CREATE TABLE study (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- Environment seeds and the partition each was declared for. The primary key is law 3: a seed
-- belongs to one partition.
CREATE TABLE seeds (
  seed      INTEGER PRIMARY KEY,
  partition TEXT NOT NULL
);

CREATE TABLE records (
  seq     INTEGER PRIMARY KEY CHECK (seq > 0),  -- 1, 2, 3, ... without gaps
  kind    TEXT NOT NULL,
  key     TEXT NOT NULL,                        -- unique inside the kind
  payload TEXT NOT NULL,                        -- canonical JSON
  digest  TEXT NOT NULL,                        -- SHA-256 of canonical {key, kind, payload}
  fields  TEXT NOT NULL,                        -- 8 hex digits per payload field, by name
  chain   TEXT NOT NULL,                        -- SHA-256 of the previous chain and this digest
  meta    TEXT NOT NULL,                        -- wall time, host, pid: not digested
  UNIQUE (kind, key)
);
CREATE INDEX records_by_kind ON records (kind);
CREATE INDEX records_by_input ON records (kind, json_extract(payload, '$.input'));

-- What a record rests on: an evaluation its measurements, a measurement its interface.
CREATE TABLE cites (
  seq   INTEGER NOT NULL REFERENCES records (seq),
  cited INTEGER NOT NULL REFERENCES records (seq),
  PRIMARY KEY (seq, cited)
) WITHOUT ROWID;

-- Files under artifacts/, named by content: "<sha256>.<extension>".
CREATE TABLE artifacts (
  ref       TEXT PRIMARY KEY,
  num_bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE holds (
  seq  INTEGER NOT NULL REFERENCES records (seq),
  name TEXT NOT NULL,
  ref  TEXT NOT NULL REFERENCES artifacts (ref),
  PRIMARY KEY (seq, name)
) WITHOUT ROWID;

CREATE VIEW interfaces AS SELECT seq, key,
  json_extract(payload, '$.model')       AS model,
  json_extract(payload, '$.task')        AS task,
  json_extract(payload, '$.target')      AS target,
  json_extract(payload, '$.discrepancy') AS discrepancy,
  json_extract(payload, '$.horizon')     AS horizon
  FROM records WHERE kind = 'interface';

CREATE VIEW libraries AS SELECT seq, key,
  json_extract(payload, '$.spec')       AS spec,
  json_extract(payload, '$.num_tuples') AS num_tuples,
  json_extract(payload, '$.num_valid')  AS num_valid,
  json_extract(payload, '$.removed')    AS removed
  FROM records WHERE kind = 'library';

CREATE VIEW measurements AS SELECT seq, key,
  json_extract(payload, '$.interface')      AS interface,
  json_extract(payload, '$.input')          AS input,
  json_extract(payload, '$.values')         AS "values",
  json_extract(payload, '$.seed')           AS seed,
  json_extract(payload, '$.partition')      AS partition,
  json_extract(payload, '$.loss')           AS loss,
  json_extract(payload, '$.frozen_loss')    AS frozen_loss,
  json_extract(payload, '$.floor')          AS floor,
  json_extract(payload, '$.discontinuity')  AS discontinuity,
  json_extract(payload, '$.failure.kind')   AS failure,
  json_extract(payload, '$.failure.reason') AS failure_reason
  FROM records WHERE kind = 'measurement';

CREATE VIEW evaluations AS SELECT seq, key,
  json_extract(payload, '$.interface') AS interface,
  json_extract(payload, '$.spec')      AS spec,
  json_extract(payload, '$.input')     AS input,
  json_extract(payload, '$.seeds')     AS seeds,
  json_extract(payload, '$.losses')    AS losses,
  json_extract(payload, '$.risk')      AS risk,
  json_extract(payload, '$.score')     AS score,
  json_extract(payload, '$.stratum')   AS stratum,
  json_extract(payload, '$.failure')   AS failure
  FROM records WHERE kind = 'evaluation';

CREATE VIEW traces AS SELECT seq, key,
  json_extract(payload, '$.method')       AS method,
  json_extract(payload, '$.restart_seed') AS restart_seed,
  json_extract(payload, '$.budget')       AS budget,
  json_extract(payload, '$.queries')      AS queries,
  json_extract(payload, '$.outcomes')     AS outcomes,
  json_extract(payload, '$.top')          AS top,
  json_extract(payload, '$.exhausted')    AS exhausted
  FROM records WHERE kind = 'trace';

CREATE VIEW validations AS SELECT seq, key,
  json_extract(payload, '$.input')   AS input,
  json_extract(payload, '$.group')   AS "group",
  json_extract(payload, '$.seeds')   AS seeds,
  json_extract(payload, '$.risk')    AS risk,
  json_extract(payload, '$.control') AS control,
  json_extract(payload, '$.verdict') AS verdict
  FROM records WHERE kind = 'validation';

CREATE VIEW neighbourhoods AS SELECT seq, key,
  json_extract(payload, '$.anchor')    AS anchor,
  json_extract(payload, '$.group')     AS "group",
  json_extract(payload, '$.radius')    AS radius,
  json_extract(payload, '$.ids')       AS ids,
  json_extract(payload, '$.mean_risk') AS mean_risk
  FROM records WHERE kind = 'neighbourhood';
