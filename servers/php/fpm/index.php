<?php
// PDO with a connection that the process keeps, and statements that it prepares for each request.

function connection(): PDO
{
    $where = 'pgsql:host=' . getenv('PGHOST') . ';port=' . getenv('PGPORT') . ';dbname=' . getenv('PGDATABASE');
    return new PDO($where, getenv('PGUSER'), getenv('PGPASSWORD'), [
        PDO::ATTR_PERSISTENT => true,
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    ]);
}

function numbers(string $name): array
{
    return array_map('intval', explode(',', $_GET[$name] ?? ''));
}

function rows(PDO $connection, array $ids): array
{
    $statement = $connection->prepare('SELECT id, number FROM world WHERE id = ?');
    $rows = [];
    foreach ($ids as $id) {
        $statement->execute([$id]);
        $rows[] = $statement->fetch();
    }
    return $rows;
}

// Rows that all processes share in APCu's memory.
function cached(array $ids): array
{
    $keys = array_map(fn ($id) => "world:$id", $ids);
    $found = apcu_fetch($keys);
    if (count($found) < count($keys)) {
        $rows = connection()->query('SELECT id, number FROM world')->fetchAll();
        $names = array_map(fn ($row) => "world:{$row['id']}", $rows);
        apcu_store(array_combine($names, $rows));
        $found = apcu_fetch($keys);
    }
    return array_map(fn ($key) => $found[$key], $keys);
}

function answer(mixed $value): void
{
    header('Content-Type: application/json');
    echo json_encode($value);
}

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
switch ($_SERVER['REQUEST_METHOD'] . ' ' . $path) {
    case 'GET /json':
        answer(['message' => 'Hello, ' . ($_GET['name'] ?? '') . '!']);
        break;
    case 'GET /cached':
        answer(cached(numbers('ids')));
        break;
    case 'POST /upload':
        $sum = hash_init('crc32b');
        $bytes = hash_update_stream($sum, fopen('php://input', 'r'));
        answer(['bytes' => $bytes, 'crc32' => hash_final($sum)]);
        break;
    case 'GET /delay':
        $ms = (int) $_GET['ms'];
        usleep($ms * 1000);
        answer(['ms' => $ms]);
        break;
    case 'GET /db':
        answer(rows(connection(), numbers('id'))[0]);
        break;
    case 'GET /queries':
        answer(rows(connection(), numbers('ids')));
        break;
    case 'POST /updates':
        $connection = connection();
        $rows = rows($connection, numbers('ids'));
        $statement = $connection->prepare('UPDATE world SET number = ? WHERE id = ?');
        foreach (numbers('numbers') as $place => $number) {
            $rows[$place]['number'] = $number;
            $statement->execute([$number, $rows[$place]['id']]);
        }
        answer($rows);
        break;
    case 'GET /fortunes':
        $rows = connection()->query('SELECT id, message FROM fortune')->fetchAll();
        $rows[] = ['id' => 0, 'message' => 'Brought by the request: ' . ($_GET['text'] ?? '')];
        usort($rows, fn ($a, $b) => strcmp($a['message'], $b['message']));
        header('Content-Type: text/html; charset=utf-8');
        require 'fortunes.php';
        break;
    default:
        http_response_code(404);
}
